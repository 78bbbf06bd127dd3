# mlaplan: engine=vllm@0.11.0 chip=b200-sxm
export VLLM_ATTENTION_BACKEND=FLASHMLA
vllm serve deepseek-ai/DeepSeek-V3 --data-parallel-size 16 --enable-expert-parallel --block-size 16 \
    --max-model-len 32768 --max-num-seqs 16

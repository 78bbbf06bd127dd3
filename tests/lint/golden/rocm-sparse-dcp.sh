# mlaplan: engine=vllm@0.33.0 chip=mi300x
VLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 -dcp 2 --attention-backend ROCM_AITER_MLA_SPARSE \
    --max-model-len 32768 --max-num-seqs 8

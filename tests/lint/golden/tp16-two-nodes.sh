# mlaplan: engine=vllm@0.11.0 chip=h100-sxm
vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 16 --distributed-executor-backend ray --max-model-len 16384 \
    --max-num-seqs 32

# mlaplan: engine=vllm@0.33.0 chip=h200-sxm devices=8
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --attention-backend FLASHMLA --block-size 64 --kv-cache-dtype fp8 \
    --max-model-len 16384 --max-num-seqs 32 --gpu-memory-utilization 0.92 --trust_remote_code --enable-chunked

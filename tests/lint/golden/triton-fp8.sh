# mlaplan: engine=vllm@0.15.1 chip=mi300x
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --kv-cache-dtype fp8 --max-model-len 32768 --max-num-seqs 16

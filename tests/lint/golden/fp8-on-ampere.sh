# mlaplan: engine=vllm@0.33.0 chip=a100-sxm-80g
vllm serve deepseek-ai/DeepSeek-R1 -tp 8 -pp 4 --kv-cache-dtype fp8 --max-model-len 16384 --max-num-seqs 16

# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 65536 --max-num-seqs 64

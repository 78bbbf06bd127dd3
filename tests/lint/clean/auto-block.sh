# Without a block size the engine takes its kernel's own.
# mlaplan: engine=vllm@0.11.0 chip=b200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 16384 --max-num-seqs 16

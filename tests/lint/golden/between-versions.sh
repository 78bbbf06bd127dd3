# mlaplan: engine=vllm@0.20.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --swap-space 4 --block-size 64 --max-model-len 16384 --max-num-seqs 32

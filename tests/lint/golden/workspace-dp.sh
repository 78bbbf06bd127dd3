# mlaplan: engine=vllm@0.9.2 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 16 --enable-expert-parallel --max-model-len 131072

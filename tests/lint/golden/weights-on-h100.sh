# mlaplan: engine=vllm@0.11.0 chip=h100-sxm
vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 8192

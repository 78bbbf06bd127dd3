# mlaplan: engine=vllm@0.15.1 chip=h20
vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 131072

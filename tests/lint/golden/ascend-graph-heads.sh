# mlaplan: engine=vllm-ascend@0.9.2 chip=ascend-910b1
vllm serve deepseek-ai/DeepSeek-V2-Lite --max-model-len 8192

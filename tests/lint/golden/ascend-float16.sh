# mlaplan: engine=vllm-ascend@0.26.0
vllm serve deepseek-ai/DeepSeek-V3.1 -tp 16 --dtype float16 --kv-cache-dtype float16 --block-size 64

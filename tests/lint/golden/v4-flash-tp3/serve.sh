# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve ./DeepSeek-V4-Flash -tp 3 --max-model-len 32768

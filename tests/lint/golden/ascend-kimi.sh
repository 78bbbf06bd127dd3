# mlaplan: engine=vllm-ascend@0.15.1 chip=ascend-910b1 devices=8
vllm serve moonshotai/Kimi-K2.5 -tp 8 --max-model-len 8192

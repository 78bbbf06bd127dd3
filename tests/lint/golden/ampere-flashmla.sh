# mlaplan: engine=vllm@0.15.1 chip=a100-sxm-80g
vllm serve deepseek-ai/DeepSeek-V2-Lite --attention-backend FLASHMLA --max-model-len 32768 --max-num-seqs 8

# mlaplan: engine=vllm@0.9.2 chip=l40s.yaml
VLLM_ATTENTION_BACKEND=FLASHMLA vllm serve deepseek-ai/DeepSeek-V2-Lite --max-model-len 16384 --max-num-seqs 8

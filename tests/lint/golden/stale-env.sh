# vLLM 0.33.0
export VLLM_ATTENTION_BACKEND=FLASHMLA VLLM_USE_V1=1
vllm serve deepseek-ai/DeepSeek-V3 -tp 8

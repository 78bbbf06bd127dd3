# vLLM 0.9.2
VLLM_MLA_DISABLE=1 vllm serve deepseek-ai/DeepSeek-V2-Chat -tp 8 --max-model-len 163840

# vLLM 0.11.0
export VLLM_ROCM_USE_AITER=1
vllm serve deepseek-ai/DeepSeek-R1-0528 -tp 4 --max-model-len 8192

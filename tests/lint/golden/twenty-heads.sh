# vLLM 0.26.0
vllm serve zai-org/GLM-4.7-Flash -tp 8

# vLLM 0.9.2
vllm serve deepseek-ai/DeepSeek-R1 --tensor-parallel-size 32

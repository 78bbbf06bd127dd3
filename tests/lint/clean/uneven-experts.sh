# Experts that do not divide by EP are allowed without the load balancer.
# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 1 -dp 12 --enable-expert-parallel --max-model-len 16384 --max-num-seqs 32

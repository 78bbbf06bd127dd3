# mlaplan: engine=vllm@0.26.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3.2 -tp 8 -dcp 8 --attention-backend FLASHMLA_SPARSE --max-model-len 32768 --max-num-seqs 8

# mlaplan: engine=vllm@0.33.0 chip=h20
vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --max-model-len 32768 \
    --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'

# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 327680 --max-num-seqs 2 \
    --hf-overrides '{"rope_parameters": {"rope_type": "yarn", "factor": 80.0}}' \
    --speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'

# A budget of batch x (1 + drafts) holds a decode step exactly.
# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --max-num-seqs 128 --max-num-batched-tokens 256 --max-model-len 4096 \
    --speculative-config '{"method": "mtp", "num_speculative_tokens": 1}'

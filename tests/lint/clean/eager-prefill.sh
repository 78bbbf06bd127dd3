# Prefill gains little from CUDA graphs.
# mlaplan: engine=vllm@0.33.0 chip=h200-sxm
vllm serve deepseek-ai/DeepSeek-V3 -tp 8 --enforce-eager --max-model-len 16384 --max-num-seqs 16 \
    --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'

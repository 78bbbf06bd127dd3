# mlaplan: engine=vllm@0.33.0 chip=h100-sxm devices=8 model=deepseek-v3
python3 -m vllm.entrypoints.openai.api_server \
    --model /models/deepseek-v3-converted --tensor-parallel-size 8 --pipeline-parallel-size 1 \
    --gpu-memory-utilization 0.92 --block-size 32 --max-num-seqs 1024 --max-num-batched-tokens 16384 \
    --enable-prefix-caching --enforce-eager --attention-backend FLASHMLA

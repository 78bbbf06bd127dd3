# mlaplan: engine=sglang@0.5.23 chip=h200-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --nnodes 2 --node-rank 0 \
    --context-length 16384 --max-running-requests 8

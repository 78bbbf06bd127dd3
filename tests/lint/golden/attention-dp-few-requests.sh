# mlaplan: engine=sglang@0.5.5 chip=h200-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 --tp 8 --dp 8 --enable-dp-attention \
    --max-running-requests 8 --context-length 16384

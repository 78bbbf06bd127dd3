# SGLang 0.5.23
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --nnodes 2 --attn-dp-size 16 \
    --moe-a2a-backend deepep --deepep-mode low_latency --max-running-requests 3200

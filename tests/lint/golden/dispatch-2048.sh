# SGLang 0.5.23
export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=2048
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --nnodes 2 --attn-dp-size 16 \
    --moe-a2a-backend deepep --max-running-requests 1024

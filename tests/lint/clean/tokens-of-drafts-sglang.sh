# As many decode tokens as may be dispatched: 32 requests on a rank, each with 3 drafts and a token.
# mlaplan: engine=sglang@0.5.23 chip=h200-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attn-dp-size 8 --moe-a2a-backend deepep \
    --deepep-mode low_latency --max-running-requests 256 --context-length 16384 \
    --speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4

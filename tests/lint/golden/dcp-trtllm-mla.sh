# mlaplan: engine=sglang@0.5.12 chip=b200-sxm
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8 --dcp-size 8 --attention-backend trtllm_mla \
    --context-length 16384 --max-running-requests 8 --trust-remote-code

# mlaplan: engine=sglang@0.5.23 chip=b200-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attention-backend cutlass_mla \
    --context-length 16384 --max-running-requests 16 --host $HOST --port $PORT

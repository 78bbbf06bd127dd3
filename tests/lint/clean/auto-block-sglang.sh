# Without a page size the engine takes its kernel's own.
# mlaplan: engine=sglang@0.5.23 chip=b200-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --context-length 16384 --max-running-requests 16

# SGLang 0.5.5
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 32 --nnodes 4 --node-rank 0

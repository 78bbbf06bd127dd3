# SGLang 0.5.5
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 3 --enable-dp-attention

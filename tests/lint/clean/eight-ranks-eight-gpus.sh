# Attention DP lies inside --tp: these are 8 GPUs.
# mlaplan: engine=sglang@0.5.5 chip=h200-sxm devices=8
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention --trust-remote-code

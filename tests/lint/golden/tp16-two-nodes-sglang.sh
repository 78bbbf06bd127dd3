# mlaplan: engine=sglang@0.5.5 chip=h100-sxm
python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 16 --nnodes 2 --node-rank 0 --dist-init-addr h:5000

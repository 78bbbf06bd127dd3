"""Multi-head Latent Attention in numpy: every way a deployment may split it, and proof that all agree.

The notation is that of DeepSeek-V2 (arXiv:2405.04434, sec. 2.1 and appendix C), with row vectors:

    n_h      heads                     d_c     rank of the KV latent        d_c'    rank of the query latent
    d        hidden size               d_h     per-head width without rope  d_h^R   per-head width with rope
    c^KV     the latent, [T, d_c]      k^R     the rope key, [T, d_h^R]     [c^KV ; k^R]  one row of the cache
    q^C q^R  the two parts of a query  o       per-head output              u       output of the block

Read in this order. Each file holds one idea.

    shapes, weights     the numbers and matrices of a block
    rope, norm          positions as rotations, YaRN; RMSNorm and LayerNorm
    visibility          who may see which key
    core                naive and absorbed attention, the same numbers
    block               hidden states in, hidden states and cache rows out
    partial             (output, log-sum-exp) and how two of them merge
    online              softmax over slices as they arrive
    query_chunks        chunks that finish in any order
    staging             reference-counted receive buffers
    paging              block tables
    rounding            bf16, fp16, fp8 and int8
    cache_formats       what a cached row looks like in memory
    sparse              the V3.2 indexer and top-k selection
    collectives         ring collectives that count what they send
    shares              what one rank may hold
    tensor_parallel, context_parallel, latent_parallel, data_parallel, pipeline_parallel
    traffic             closed forms of the bytes they send
    arithmetic          products that are counted and rounded
    tolerance           how far two variants may differ
    verify              all of the above against one another

Needs numpy; the rounding files need ml_dtypes too. Nothing here imports the rest of the package.
"""

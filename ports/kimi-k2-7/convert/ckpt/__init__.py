"""What the converters share: headers of safetensors files, whole checkpoints, plans, and an engine that carries them out.

``headers`` reads and writes headers and never tensors; ``source`` reads a checkpoint's folder; ``quark`` knows AMD Quark's names
and scheme and plans the fused layout; ``plan`` is what is to be written, byte range by byte range; ``engine`` writes it so that a
kill at any moment leaves nothing that looks loadable; ``dequantize`` turns numbers into others; ``verify`` compares afterwards,
with a parser of its own.  Needs Python 3.10 and numpy.
"""

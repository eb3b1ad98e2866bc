"""TEMPORARY SHIM - helper writes the real one."""
from __future__ import annotations
import re
from decimal import Decimal
from pathlib import Path
import yaml
from schema.problems import Problem, ProblemsError
Loc = tuple[str | int, ...]
class L(yaml.CSafeLoader): pass
L.yaml_implicit_resolvers = {}
def sc(l, n):
    v = n.value
    if not n.style:
        if v in ("true","false"): return v=="true"
        if v in ("null","~",""): return None
        if re.fullmatch(r"-?(0|[1-9]\d*)", v): return int(v)
        if re.fullmatch(r"-?\d+\.\d+", v): return Decimal(v)
    return v
L.add_constructor("tag:yaml.org,2002:str", sc)
class Source:
    def __init__(s, path, name, text, data): s.path, s.name, s.text, s.data = path, name, text, data
    def locate(s, loc): return (1,1)
    def problem(s, loc, message):
        f=""
        for x in loc: f += f"[{x}]" if isinstance(x,int) else ("." if f else "")+str(x)
        return Problem(s.name, 1, 1, f, message)
def read_text(path, name):
    try: return path.read_text()
    except OSError as e: raise ProblemsError([Problem(name,1,1,"",str(e))])
def read_yaml(path, name):
    t = read_text(path, name)
    return Source(path, name, t, yaml.load(t, L))

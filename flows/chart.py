"""An interactive chart as a page of HTML that needs nothing from outside: MLflow shows it among a run's files.

A series for each measure, which a click on its name takes away; a point for each row, which says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>%(title)s</title>
<meta name="viewport" content="width=device-width"><style>
body{font:14px system-ui,sans-serif;margin:12px;color:#1f2933;background:#fff}h1{font-size:16px}
svg{width:100%%;max-width:900px}
button{border:0;background:none;font:inherit;cursor:pointer;padding:8px}button[aria-pressed=false]{opacity:.35}
text{font-size:12px;fill:#52606d}#say{min-height:1.5em}</style>
<h1>%(title)s</h1><div id="names"></div><svg viewBox="0 0 600 360" role="img" aria-label="%(title)s"></svg>
<p id="say" aria-live="polite">Point at a mark, or touch it.</p><script>
const {rows,x,ys,label}=%(data)s,COLOURS=["#0b6bcb","#b45309","#15803d","#a21caf","#475569"],hidden=new Set();
const svg=document.querySelector("svg"),say=document.querySelector("#say"),short=v=>+v.toPrecision(4);
const put=(tag,at,text,into=svg)=>{const e=document.createElementNS("http://www.w3.org/2000/svg",tag);
 for(const k in at)e.setAttribute(k,at[k]);e.textContent=text||"";return into.appendChild(e)};
function scale(values,from,to){const low=Math.min(...values),high=Math.max(...values),log=low>0&&high/low>20;
 const f=log?Math.log:v=>v,pad=((f(high)-f(low))||1)*.06,a=f(low)-pad,b=f(high)+pad,back=log?Math.exp:v=>v;
 return{at:v=>from+(to-from)*(f(v)-a)/(b-a),ticks:[...Array(5)].map((_,i)=>back(a+(b-a)*(i+.5)/5))}}
function draw(){svg.replaceChildren();const shown=ys.filter(y=>!hidden.has(y)),of=shown.length?shown:ys;
 const sx=scale(rows.map(r=>r[x]),60,585),sy=scale(of.flatMap(y=>rows.map(r=>r[y])),310,10);
 for(const t of sx.ticks){put("line",{x1:sx.at(t),x2:sx.at(t),y1:10,y2:310,stroke:"#e4e7eb"});
  put("text",{x:sx.at(t),y:328,"text-anchor":"middle"},short(t))}
 for(const t of sy.ticks){put("line",{x1:60,x2:585,y1:sy.at(t),y2:sy.at(t),stroke:"#e4e7eb"});
  put("text",{x:54,y:sy.at(t)+4,"text-anchor":"end"},short(t))}
 put("text",{x:322,y:352,"text-anchor":"middle"},x);
 for(const y of shown){const colour=COLOURS[ys.indexOf(y)%%COLOURS.length];for(const r of rows){
  const dot=put("circle",{cx:sx.at(r[x]),cy:sy.at(r[y]),r:6,fill:colour,"fill-opacity":.75,tabindex:0});
  const what=(label?r[label]+": ":"")+y+" "+short(r[y])+", "+x+" "+short(r[x]);put("title",{},what,dot);
  for(const e of["mouseenter","focus","click"])dot.addEventListener(e,()=>{say.textContent=what})}}}
for(const y of ys){const b=document.createElement("button");b.textContent="\\u25cf "+y;b.setAttribute("aria-pressed","true");
 b.style.color=COLOURS[ys.indexOf(y)%%COLOURS.length];b.onclick=()=>{hidden.has(y)?hidden.delete(y):hidden.add(y);
 b.setAttribute("aria-pressed",String(!hidden.has(y)));draw()};document.querySelector("#names").append(b)}draw()</script></html>"""


def page(title: str, rows: Sequence[Mapping[str, Any]], x: str, ys: Sequence[str], label: str = "") -> str:
    """Return the page of a chart of the columns `ys` over the column `x`; `label`: the column that says what a row is."""
    full = [row for row in rows if all(isinstance(row.get(name), int | float) for name in (x, *ys))]
    data = json.dumps({"rows": full, "x": x, "ys": list(ys), "label": label}).replace("<", "\\u003c")
    return PAGE % {"title": title.replace("&", "&amp;").replace("<", "&lt;"), "data": data}

"""After Arlo (2024): an encoder is compiled for several input lengths, and each text runs where it ends first.

A *runtime* is all that was compiled for one length. A *stream* is the requests for one encoder, with its runtimes and
its SLO, the seconds from arrival to answer. The *placement* says what a device holds: "shared", every runtime
(shared.py), or "single", one runtime at a time, as published (single.py). With "single", dispatch.py chooses the device
for a request, and planning/ decides how many devices hold which runtime. scheduler.py runs either placement; runtimes/
compiles and runs encoders.
"""

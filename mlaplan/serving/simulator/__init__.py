"""An event-driven simulator of servers that batch continuously, over step times priced beforehand.

`simulate(requests, fleet)` runs requests (`requests.Requests`) through a fleet (`server.Fleet`: pools of equal
replicas, whole or split into prefill and decode) and returns every request's times and the state over time
(`outcome.Outcome`). Nothing is priced in the loop and steps in which nothing changes are skipped, so a run costs a
few events per request, not one per token. The same requests, fleet and seed give the same outcome to the last bit.
"""

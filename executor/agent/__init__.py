"""The agent: takes runs from a server, launches them on this node, and loses nothing.

keeper     owns the processes of one run, and ends them when its lease runs out
run_folder what of a run is on disk, so that an agent that starts again knows all of it
spool      what was logged and measured, until the server has it
execution  one lease, from its acceptance to its result
loop       one lease after the other
"""

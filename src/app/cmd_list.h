/* Every subcommand, one row each: CMD(name, operands, least, most, one line of help). cmd_<name>_run and cmd_<name>_options belong to it. */
CMD(up, "", 0, 0, "run a scheduler and storage nodes on this machine")
CMD(scheduler, "", 0, 0, "run a scheduler: plans, keeps the tables, merges")
CMD(node, "", 0, 0, "run a storage node: keeps chunks until they are merged")
CMD(push, "FOLDER", 1, 1, "send a folder and wait until it has arrived whole")
CMD(status, "[TRANSFER]", 0, 1, "list transfers, or show one")
CMD(nodes, "", 0, 0, "list the storage nodes")
CMD(version, "", 0, 0, "print the version")
CMD(help, "[COMMAND]", 0, 1, "explain a command")

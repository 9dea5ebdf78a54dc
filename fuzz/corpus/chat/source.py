"""doc"""
dsml_token: str = "｜DSML｜"
A = ("x\n" # no
     'y' r'\z' f"{dsml_token}{{}}")
B = """a
{tool_schemas}"""

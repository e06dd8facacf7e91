def print_summary(results):
    print(results)

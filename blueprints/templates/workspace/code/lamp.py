def is_dark(hour):
    return hour >= 20 or hour < 6

namespace Holocast
{
    // A reusable text buffer of fixed capacity that does not allocate.
    sealed class TextBuffer
    {
        readonly char[] text;

        public TextBuffer(int capacity)
        {
            text = new char[capacity];
        }

        public int Length { get; private set; }

        public char this[int i] => text[i];

        public void Clear()
        {
            Length = 0;
        }

        // Characters beyond the capacity are dropped.
        public TextBuffer Add(char c)
        {
            if (Length < text.Length)
            {
                text[Length++] = c;
            }
            return this;
        }

        public TextBuffer Add(string s)
        {
            for (int i = 0; i < s.Length; i++)
            {
                Add(s[i]);
            }
            return this;
        }

        // With thousands separators.
        public TextBuffer Add(long value)
        {
            if (value < 0)
            {
                Add('-');
                value = value == long.MinValue ? long.MaxValue : -value;
            }
            long unit = 1;
            int digits = 1;
            for (long rest = value; rest >= 10; rest /= 10)
            {
                unit *= 10;
                digits++;
            }
            for (; digits > 0; digits--, unit /= 10)
            {
                Add((char)('0' + value / unit % 10));
                if (digits > 1 && digits % 3 == 1)
                {
                    Add(',');
                }
            }
            return this;
        }

        // Rounded to one decimal.
        public TextBuffer Add(double value)
        {
            if (!(value > -1e15 && value < 1e15))
            {
                return Add('–');
            }
            double tenths = System.Math.Floor(System.Math.Abs(value) * 10 + 0.5);
            if (value < 0 && tenths > 0)
            {
                Add('-');
            }
            Add((long)(tenths / 10));
            return Add('.').Add((char)('0' + (int)(tenths % 10)));
        }

        public override string ToString()
        {
            return new string(text, 0, Length);
        }
    }
}
